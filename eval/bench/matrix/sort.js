document.querySelectorAll("th").forEach(function(th){th.addEventListener("click",function(){
 var table=th.closest("table"),body=table.tBodies[0],i=th.cellIndex,down=th.dataset.down!=="1";
 var value=function(r){return r.cells[i].dataset.v===undefined?r.cells[i].textContent:Number(r.cells[i].dataset.v)};
 var rows=Array.from(body.rows).sort(function(a,b){var x=value(a),y=value(b);
  return typeof x==="number"&&typeof y==="number"?x-y:String(x).localeCompare(String(y))});
 if(down)rows.reverse();
 table.querySelectorAll("th").forEach(function(o){delete o.dataset.down});
 th.dataset.down=down?"1":"0";rows.forEach(function(r){body.appendChild(r)});
});});
